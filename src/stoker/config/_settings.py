"""The base class of all settings."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Typed settings: immutable, checked (the defaults too), and without room for unknown keys.

    A subclass costs next to nothing to define: its validator is built when it is first used. So
    give a section as ``loader: Loader = Field(default_factory=Loader)``; a default written
    ``Loader()`` builds that validator at import.

    A section that is given in part takes the rest from the section's own class, not from the
    default of the field that holds it. A recipe with other defaults for a section therefore
    subclasses the section.

    Where one of several sections may stand, tell them apart by a discriminator
    (``Field(discriminator="kind")``): errors then speak of the one that was meant.

    Instances are immutable, but a list or dict inside is not: prefer tuples.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        defer_build=True,
        ser_json_inf_nan="constants",  # null would not come back as the number it was
    )
