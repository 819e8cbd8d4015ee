"""Nothing in the tests reaches a network, a hub or a W&B account."""

import os

os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="offline", WANDB_SILENT="true", TOKENIZERS_PARALLELISM="false")
