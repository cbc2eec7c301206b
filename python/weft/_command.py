"""The command `weft` of a wheel: the program that is inside the package."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "weft")
    os.execv(program, [program, *sys.argv[1:]])
