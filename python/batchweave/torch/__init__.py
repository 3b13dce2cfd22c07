"""What torch, Lightning and transformers expect: data sets, loaders, callbacks. Has no twin."""
