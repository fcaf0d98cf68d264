"""``autogemm tune``: the main job."""
