"""Work done before anybody asks: reading, and questions to suggest."""
