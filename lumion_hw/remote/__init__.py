"""Using a bench that another process serves: values and errors as JSON, PV Access, a stand-in for each interface."""
