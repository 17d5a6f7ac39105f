"""Abu-Tair et al. (Photonics 2019): a direct link in place of a spine's."""
