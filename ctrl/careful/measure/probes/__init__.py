"""What is sent to be timed, and the sessions for it; what the times mean is estimators'."""
