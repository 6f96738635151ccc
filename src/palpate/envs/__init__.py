"""Worlds: where triples come from. Importing this makes their ids known to `gymnasium.make`."""

from palpate.envs.registration import register

register()
