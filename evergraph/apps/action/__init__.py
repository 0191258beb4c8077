"""Action recognition from body-worn sensors: Section 6 and Appendix C of the paper."""
