"""The parts of generation bias: what is scored of responses, one file each."""
