"""Works before anyone asks: prefills documents and suggests questions."""
