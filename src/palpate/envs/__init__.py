"""Our worlds. Importing this registers their ids with Gymnasium."""

from palpate.envs.registration import register

register()
