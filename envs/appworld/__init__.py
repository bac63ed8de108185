"""AppWorld: a person's day across eleven apps, worked by writing Python against their APIs."""
