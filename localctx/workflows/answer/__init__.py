"""How a question is answered: whole documents or passages, checked and cited."""
