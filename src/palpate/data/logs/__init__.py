"""Readers of other projects' logs: LeRobot, robomimic, diffusion policy's zarr, and Minari."""
