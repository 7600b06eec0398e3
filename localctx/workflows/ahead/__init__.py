"""Work done before the user asks: prefills documents, tells what they are about, and suggests questions."""
