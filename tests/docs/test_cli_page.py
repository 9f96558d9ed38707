"""The reference of the command line says what `--help` says."""

from tests.docs.cli_page import PAGE, page


def test_the_reference_is_what_help_says() -> None:
    """After a change of the command line: `python -m tests.docs.cli_page`."""
    assert page() == PAGE.read_text("utf-8")
