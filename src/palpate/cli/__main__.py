"""python -m palpate.cli"""

from palpate.cli import main

main()
