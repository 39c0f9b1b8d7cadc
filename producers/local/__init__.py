"""A fleet on this machine: what `fleet up` and `fleet demo` start, watch and end."""
