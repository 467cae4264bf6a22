"""Generators of the C header, the test vectors in C, and the tables of the document. All return text."""
