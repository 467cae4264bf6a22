"""What emulated devices share on their wires: serial lines, TCP, ptys, HiSLIP, supply and cable."""
