"""A Snapdragon's NPU without a phone, by Qualcomm's own compiler and simulator.

The package ``onnxruntime-qnn`` (the extra ``qnn``) brings them; nothing of it is shipped here.
What comes out is *estimated*: never a measurement, and never stored beside one.
"""
