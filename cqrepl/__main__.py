"""Entry point of the command `cqrepl` and of `python -m cqrepl`."""

from cqrepl.cli import cli


def main() -> None:
    """Runs the command line."""
    cli(prog_name="cqrepl")


if __name__ == "__main__":
    main()
