"""Work done before the user asks: prefills documents and suggests questions."""
