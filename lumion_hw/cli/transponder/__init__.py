"""``lumion transponder``: commands on modules of a bench and on saved memories."""
