"""Options and commands that there are not."""

from __future__ import annotations

from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, provoked


@provoked(2, "no such command 'profil': did you mean 'profile'? See `nnapi-prof --help`")
def an_unknown_command(at: Place) -> Arguments:
    return ["profil", at.model]


@provoked(2, "no such option '--devices': did you mean '--device'? See `nnapi-prof profile --help`")
def an_unknown_option(at: Place) -> Arguments:
    return ["profile", "--devices", "local", at.model]


@provoked(2, "missing argument 'MODEL': see `nnapi-prof partition --help`")
def an_argument_that_is_missing(at: Place) -> Arguments:
    return ["partition", *SIM]


@provoked(2, facts=("'--threads'", "'many'", "profile --help"))
def a_number_that_is_none(at: Place) -> Arguments:
    return ["profile", *SIM, "--threads", "many", at.model]


@provoked(2, "--quiet and --verbose exclude each other: leave one out")
def quiet_and_verbose(at: Place) -> Arguments:
    return ["profile", *SIM, "-q", "-v", at.model]


@provoked(
    2,
    "no document 'devises' (did you mean devices?): `nnapi-prof schema` lists them",
)
def an_unknown_schema(at: Place) -> Arguments:
    return ["schema", "devises"]


@provoked(2, facts=("'powershell'", "'bash'", "'zsh'", "'fish'"))
def an_unknown_shell(at: Place) -> Arguments:
    return ["completion", "powershell"]


@provoked(2, facts=("{tmp}/absent.pt", "does not exist"))
def a_model_that_is_missing_for_everything(at: Place) -> Arguments:
    return ["go", *SIM, at.tmp / "absent.pt"]


@provoked(1, facts=("'gpu-fone'", "gpu-phone?"), document="go")
def an_unknown_phone_for_everything(at: Place) -> Arguments:
    return ["go", "--device", "sim:gpu-fone", *SHAPE, at.model]
