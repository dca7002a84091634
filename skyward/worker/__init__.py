"""What runs on a node. Imports nothing but the standard library, cloudpickle and the engine."""
