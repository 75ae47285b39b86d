"""Start here
==========

x
"""

import torchferry as tf

print(tf.__version__)
