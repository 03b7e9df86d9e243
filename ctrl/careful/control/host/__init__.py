"""The machine: interfaces, routes, NICs, firewall, hugepages."""
