"""For all tests: properties are judged by their answers, not by how busy the machine is."""

from hypothesis import HealthCheck, settings

from tests.support.examples import examples

settings.register_profile(
    "reprise", examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reprise")
