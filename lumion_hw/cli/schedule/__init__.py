"""``lumion schedule``: communication schedules and the phases of a training job."""
