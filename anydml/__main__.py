"""`python -m anydml`, and the command `anydml`."""

import sys


def main() -> None:
    """The command line; Ctrl-C is as quiet while it is still being loaded."""
    try:
        from anydml.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("anydml: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
