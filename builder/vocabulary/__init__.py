"""Which tokens a draft considers: rankings fitted in closed form or trained, and static subsets."""
