"""Two workers share two cores: one thread each, or they wait for each other."""

import signal

import torch

torch.set_num_threads(1)

# A job in the background is started deaf to Ctrl-C, and so would be the processes that tests start to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
