"""Driver of Qontrol current sources."""
