"""Tables: the rows of spreadsheets and CSV files as text, and questions that compute over them."""
