"""python -m palpate.cli"""

from palpate.cli import main

if __name__ == "__main__":
    main()
