"""The whole network as one operator: families of models, masking, time and memory."""
