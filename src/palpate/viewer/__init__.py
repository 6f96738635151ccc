"""`palpate view`: a run, a log and a world as pages in the browser.

Pages (`page.py`, `run_page.py`, `log_page.py`, `play_page.py`) are thin. What they show is computed by the other files,
which do not import NiceGUI and are tested without a browser.
"""
