"""Client of a bench that another process serves: JSON codec, PV Access connection and device proxies."""
