"""One loader a file, each run as a process of its own: ``python benchmarks/peers/NAME.py WORKLOAD_FOLDER``.

workloads.py  the data all of them read        serving.py  what such a process does
driving.py    starting, asking, installing     torch_loader.py  PyTorch's DataLoader, well configured
"""
