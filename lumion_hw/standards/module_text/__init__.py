"""Memories of optical modules as text: the forms that other tools print, and text that other tools can read."""

from lumion_hw.standards.module_text.forms import FORMS, TextForm, image_from_text
from lumion_hw.standards.module_text.writing import text_of_image

__all__ = ["FORMS", "TextForm", "image_from_text", "text_of_image"]
