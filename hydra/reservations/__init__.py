"""Reservations: requests, admission, and the calendar of bookings."""
