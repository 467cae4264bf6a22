"""The mesh as a calibration sees it: parameters, predicted readings and their noise."""
