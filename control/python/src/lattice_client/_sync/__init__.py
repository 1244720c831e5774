# Written by `generate` from `_async/`: do not edit.
