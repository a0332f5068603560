"""Reading user data: folders, images, texts and tables."""
