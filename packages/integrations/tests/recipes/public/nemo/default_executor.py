import nemo
executor.container_mounts = []
