"""Plans of running instances, in their BPF map."""
