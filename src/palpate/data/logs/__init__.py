"""Readers of other projects' logs: LeRobot, robomimic, and diffusion policy's zarr."""
