"""Tests with a real Kubernetes cluster of their own: control plane, kubelet, and pods of Docker's daemon."""
