"""What a record says, for people; and how it compares with the truth of an emulated chip."""
