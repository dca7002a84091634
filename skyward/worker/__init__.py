"""The worker of a node. Imports nothing but the standard library, cloudpickle and the engine."""
