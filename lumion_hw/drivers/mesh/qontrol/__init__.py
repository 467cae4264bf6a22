"""The driver of Qontrol current sources."""
